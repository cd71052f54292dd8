"""OAuth for MCP clients of other machines: a person signs in at the gateway, and the client gets tokens of that person.

Nothing is stored here. A registered client, a code and a refresh token are each a value that only the gateway can read,
sealed under the deployment's secret, so that any replica takes what another gave out and nobody can fill a table.
"""
