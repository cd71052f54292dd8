"""What sessions keep in mind, what they leave behind, and which runs there were."""
