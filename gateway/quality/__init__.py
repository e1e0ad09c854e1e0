"""Quality control after the US IOOS QARTOD manuals: tests flag a reading and never change its value."""
