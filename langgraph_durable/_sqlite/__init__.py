"""The storage port on SQLite: `schema`, the `verbs` as functions of a connection, and `database`."""
