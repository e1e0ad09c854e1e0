"""What a gateway reports about itself: runs, status, events."""
