// Narrow screens: legends move below their plots, margins and fonts shrink, and dragging scrolls the page instead of
// zooming a plot. Wide screens restore the figure's original layout. Printing resizes plots to the width of the paper.
(function () {
  const narrow = window.matchMedia("(max-width: 700px)");
  const plots = () => Array.from(document.querySelectorAll(".js-plotly-plot"));
  const copy = (value) => (value === undefined ? null : JSON.parse(JSON.stringify(value)));
  const authored = new Map(plots().map((plot) => [plot, {
    legend: copy(plot.layout.legend),
    margin: copy(plot.layout.margin),
    "font.size": copy((plot.layout.font || {}).size),
    dragmode: copy(plot.layout.dragmode),
  }]));
  const small = (plot) => ({
    legend: {orientation: "h", xref: "container", x: 0, xanchor: "left", yref: "container", y: 0, yanchor: "bottom"},
    margin: {...plot.layout.margin, l: 48, r: 8, b: 48},
    "font.size": 11,
    dragmode: false,
  });
  const fit = () => plots().forEach((plot) => {
    Plotly.relayout(plot, narrow.matches ? small(plot) : copy(authored.get(plot)));
  });
  if (narrow.matches) fit();
  narrow.addEventListener("change", fit);
  window.addEventListener("beforeprint", () => plots().forEach((plot) => Plotly.relayout(plot, {width: 660})));
  window.addEventListener("afterprint", () => plots().forEach((plot) => {
    Plotly.relayout(plot, {width: null, autosize: true});
  }));
})();
