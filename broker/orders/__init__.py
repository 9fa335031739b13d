"""What the controller orders this broker to do."""
