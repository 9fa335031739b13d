"""What is installed: wheels and sdists, in environments of their own, used outside the checkout."""
