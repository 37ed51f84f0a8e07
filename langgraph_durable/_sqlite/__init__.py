"""The storage port on SQLite.

`storage` asks for transactions; `reading`, `writing` and `removing` are what happens inside them,
on the tables of `schema`; `database` carries them out on `connections`.
"""
