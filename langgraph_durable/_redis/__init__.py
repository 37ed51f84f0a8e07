"""The storage port on Redis and Valkey: core commands only.

`storage` asks for requests; `scripts/*.lua` is what happens inside the server, and `plain` is the
same for servers that allow no scripts; `keys` builds every name; `driver` carries requests out on
the clients that `clients` makes.
"""
