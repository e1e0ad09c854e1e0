"""Alerts reach people: by mail, chat or a webhook, grouped, and not at night."""
