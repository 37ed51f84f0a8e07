"""The promises by theme; `langgraph_durable.testing.contract` puts them together."""
