"""What every RPC of every service passes through, one concern per module."""
