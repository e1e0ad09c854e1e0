"""What masts have measured, in sums: for the pages and the reports over a lake. Needs ``analyst``."""
