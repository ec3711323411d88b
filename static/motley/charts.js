"use strict";
// Draws the Plotly figures of the page in the colours of its theme.
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = () => ({ gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line") });
  const themed = (layout) => ({
    ...layout,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--ink-2") },
    hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
    xaxis: { ...layout.xaxis, ...axis() },
    yaxis: { ...layout.yaxis, ...axis() },
  });
  const draw = (place) => {
    const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
    Plotly.react(place, figure.data, themed(figure.layout), { responsive: true, displaylogo: false, displayModeBar: false });
  };
  const drawAll = () => document.querySelectorAll("[data-figure]").forEach(draw);
  document.addEventListener("theme", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
})();
