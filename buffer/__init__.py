"""Durable queues of opaque records. Handles record numbers and bytes, not their meaning or destination.

    sqlite_outbox   the outbox: its lock, opening, what to do about damage
    reader          an outbox that another program may be using, read only
    disk_blocks     the blocks in the file: storing, dropping, reading, removing
    blocks, tables  what a block is; the tables of the file
    numbering       how many records there are, and how they are numbered
    outbox_file     the SQLite file: opening it, transactions, the ballast that is room on a full disk
    recovery        salvage from damaged files

The others are parts of these.
"""
