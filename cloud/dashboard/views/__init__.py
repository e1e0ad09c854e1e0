"""What a mast's page is made of: the statistics that an address wants, each chart, what it shows in words."""
