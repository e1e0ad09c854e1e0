"""What an operator does with the fleet from the desk: topics, users, access, commands, accounts, watching."""
