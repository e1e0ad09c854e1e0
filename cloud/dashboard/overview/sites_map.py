"""Where the masts stand, on a map: its program comes with NiceGUI, its tiles from where the operator says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from nicegui import ui

from cloud.config import DashboardConfig
from cloud.dashboard.frame import card
from cloud.dashboard.plots import STATES

_DRAW: Final = Path(__file__).with_name("sites_map.js")


class SitesMap:
    """A card with a map, or words in its place. Shown anew it stays where it was moved to."""

    def __init__(self, config: DashboardConfig) -> None:
        self._tiles, self._attribution = config.tiles, config.tiles_attribution
        ui.add_head_html(f"<script>{_DRAW.read_text()}</script>")
        with card("Sites") as head:
            self._words = ui.label().classes("missing").props('role="status"')
            # The page is scrolled by the wheel; the map has buttons.
            self._map = ui.leaflet(options={"scrollWheelZoom": False}).classes("chart tall map")
            # NiceGUI's own tiles are another's.
            self._map.layers.clear()
            self._map.props('role="group" aria-label="Sites"')
        with head:
            ui.element("span").classes("gap")
            ui.link("CSV", "/csv/fleet").classes("export").props("download")

    def show(self, masts: list[dict[str, Any]] | str) -> None:
        """Draws masts that have coordinates, or shows words in their place."""
        self._words.set_text(masts if isinstance(masts, str) else "")
        self._words.set_visibility(isinstance(masts, str))
        self._map.set_visibility(not isinstance(masts, str))
        if isinstance(masts, str):
            return
        drawn = [
            {"name": mast["gateway"], "state": mast["state"], "colour": STATES[mast["state"]],
             "at": [mast["latitude"], mast["longitude"]]}
            for mast in masts if None not in (mast["latitude"], mast["longitude"])
        ]  # fmt: skip
        given = ", ".join(json.dumps(each) for each in (drawn, self._tiles, self._attribution))
        self._map.client.run_javascript(f"drawSites({self._map.id}, {given})")
