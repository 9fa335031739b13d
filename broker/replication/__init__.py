"""The replicas of this broker: their roles, in-sync sets, high watermarks, and who waits for them."""
