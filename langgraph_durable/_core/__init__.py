"""The rules, without I/O: values to records and back, heads, lineage, metadata.

Nothing in here imports a database driver, a socket or `RunnableConfig`; a test keeps it so.
"""
