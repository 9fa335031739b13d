"""What is asked of the cluster: the shared snapshot, single groups, messages. No page is known here."""
