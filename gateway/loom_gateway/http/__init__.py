"""HTTP in: the routes of the gateway and what guards them."""
