"""What a namespace holds and what happens in it, in exact numbers, for the service that tells of it."""
