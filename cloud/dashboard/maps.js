// Draws on a Leaflet map of NiceGUI's, once that is there. Nothing but the tiles is fetched from elsewhere.
const drawOnMap = (id, tiles, attribution, layers) => {
  const map = getElement(id)?.map;
  if (!map) return setTimeout(() => drawOnMap(id, tiles, attribution, layers), 50);
  const drawn = L.featureGroup(layers());
  if (!map.drawn) {
    map.attributionControl.setPrefix(false);
    // Before there are tiles, or those of the whole world would be fetched first.
    map.fitBounds(drawn.getBounds(), {maxZoom: 12, padding: [40, 40]});
    if (tiles) L.tileLayer(tiles, {attribution, maxZoom: 19}).addTo(map);
    L.control.scale().addTo(map);
  }
  map.drawn?.remove();
  map.drawn = drawn.addTo(map);
};
const mapDot = (at, text, fillColor, radius, tooltip) => {
  // As text: a name may look like HTML.
  const words = document.createElement('span');
  words.textContent = text;
  return L.circleMarker(at, {radius, weight: 1, color: '#fff', fillColor, fillOpacity: 1}).bindTooltip(words, tooltip);
};
window.drawSites = (id, masts, tiles, attribution) => drawOnMap(id, tiles, attribution, () => masts.map(
  ({name, state, colour, at}) => mapDot(at, masts.length > 40 ? `${name}, ${state}` : name, colour, 7,
    {permanent: masts.length <= 40, direction: 'right', offset: [6, 0]})
    .on('click', () => { location = '/mast/' + encodeURIComponent(name); })));
window.drawTrack = (id, {planned, track}, tiles, attribution) => drawOnMap(id, tiles, attribution, () => [
  L.polyline(track.map(({at}) => at), {color: '#e8833a', weight: 2}),
  ...track.map(({at, words}, n) => mapDot(at, words, '#e8833a', 4,
    {permanent: n === 0 || n === track.length - 1, direction: 'right', offset: [6, 0]})),
  ...planned.map(({at, words}) => mapDot(at, words, '#2f7ed8', 7,
    {permanent: true, direction: 'left', offset: [-6, 0]})),
]);
