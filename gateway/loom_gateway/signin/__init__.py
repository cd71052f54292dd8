"""How people sign in: a link or an identity provider begins a session, a cookie carries it, tokens are made of it."""
