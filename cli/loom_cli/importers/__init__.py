"""Files of other systems, read into memories and conversations; one module for each kind of file."""
