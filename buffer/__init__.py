"""Durable queues of opaque records. Handles record numbers and bytes, not their meaning or destination.

    sqlite_outbox   the outbox: opening, what to do about damage
    reader          an outbox that another program may be using, read only
    disk_blocks     the blocks in the file: storing, dropping, reading, removing
    blocks, tables  what a block is; the tables of the file, and how records are numbered
    outbox_file     the SQLite file: its lock, transactions, caps, the ballast that is room on a full disk
    files, errors   files that survive a power cut; errors, and reports of dropped records

The others are parts of these.
"""
