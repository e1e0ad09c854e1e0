"""Reports and data of masts, sent to people and places by ``[deliver.NAME]``. Needs the extra ``report``."""
