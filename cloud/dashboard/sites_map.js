// Draws the masts on a Leaflet map of NiceGUI's, once that is there. Nothing but the tiles is fetched from elsewhere.
window.drawSites = (id, masts, tiles, attribution) => {
  const map = getElement(id)?.map;
  if (!map) return setTimeout(() => drawSites(id, masts, tiles, attribution), 50);
  const drawn = L.featureGroup(masts.map(({name, state, colour, at}) => {
    // As text: a name may look like HTML.
    const words = document.createElement('span');
    words.textContent = masts.length > 40 ? `${name}, ${state}` : name;
    return L.circleMarker(at, {radius: 7, weight: 1, color: '#fff', fillColor: colour, fillOpacity: 1})
      .bindTooltip(words, {permanent: masts.length <= 40, direction: 'right', offset: [6, 0]})
      .on('click', () => { location = '/mast/' + encodeURIComponent(name); });
  }));
  if (!map.sites) {
    map.attributionControl.setPrefix(false);
    // Before there are tiles, or those of the whole world would be fetched first.
    map.fitBounds(drawn.getBounds(), {maxZoom: 12, padding: [40, 40]});
    L.tileLayer(tiles, {attribution, maxZoom: 19}).addTo(map);
  }
  map.sites?.remove();
  map.sites = drawn.addTo(map);
};
