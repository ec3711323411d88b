"use strict";
// Draws the Plotly figures of the page in the colours of its theme.
(() => {
  const SCALE = 2; // of a saved picture
  const NARROW_PX = 600; // the entries of a legend would cover the axis on top
  const TICK_PX = 130; // of a time axis
  const LEGEND_LINE_PX = 29;
  const NARROW_LEGEND_PX = 64; // three lines, of more it scrolls: Plotly itself would give it half of the chart
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = () => ({ gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line") });
  const axes = (layout) => ["xaxis", "yaxis", ...Object.keys(layout).filter((name) => /^[xy]axis\d+$/.test(name))];
  const themed = (layout) => ({
    ...layout,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--ink-2") },
    hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
    ...Object.fromEntries(axes(layout).map((name) => [name, { ...layout[name], ...axis() }])),
  });
  // Plotly's own button loads the picture from a blob, which the content security policy forbids.
  const save = async (place) => {
    const svg = await Plotly.toImage(place, { format: "svg", width: place.clientWidth, height: place.clientHeight });
    const picture = new Image();
    picture.src = svg;
    await picture.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [SCALE * picture.width, SCALE * picture.height];
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((done) => { canvas.toBlob(done, "image/png"); });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${place.dataset.tools}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };
  const tools = () => ({
    displayModeBar: true,
    modeBarButtons: [[{ name: "save", title: "Download as PNG", icon: Plotly.Icons.camera, click: save }, "zoom2d", "pan2d", "resetScale2d"]],
  });
  const draw = (place) => {
    const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
    const hasTools = "tools" in place.dataset;
    const isNarrow = place.clientWidth < NARROW_PX;
    const layout = themed(figure.layout);
    if (isNarrow) layout.legend = { ...layout.legend, maxheight: NARROW_LEGEND_PX };
    // Of more times Plotly tilts the labels, and cuts off the one with the date.
    if (isNarrow && layout.xaxis.type === "date") layout.xaxis.nticks = Math.max(2, Math.floor(place.clientWidth / TICK_PX));
    if (hasTools) {
      Object.assign(layout, { paper_bgcolor: colour("--card"), hoveranywhere: true, clickanywhere: true });
      layout.xaxis.nticks = Math.max(2, Math.floor(place.clientWidth / TICK_PX));
      const spare = Gantt.legendLines(figure, place.clientWidth) - 1;
      if (isNarrow) layout.legend = { ...layout.legend, yref: "paper", y: 0 };
      else if (layout.showlegend) layout.margin = { ...layout.margin, t: layout.margin.t + LEGEND_LINE_PX * spare };
    }
    const mode = hasTools ? tools() : { displayModeBar: false };
    const isNew = !place.on;
    const data = hasTools ? Gantt.tracesOf(place, figure) : figure.data;
    Plotly.react(place, data, layout, { responsive: true, displaylogo: false, ...mode });
    if (isNew && hasTools) Gantt.follow(place);
  };
  const drawAll = () => document.querySelectorAll("[data-figure]").forEach(draw);
  // A live page replaces the figures' data and leaves what is drawn alone; the plan of a new job is replaced as a whole.
  const drawn = new Map();
  const forgetRemoved = () => [...drawn.keys()].filter((place) => !place.isConnected).forEach((place) => {
    Plotly.purge(place);
    drawn.delete(place);
  });
  const drawChanged = () => {
    forgetRemoved();
    document.querySelectorAll("[data-figure]").forEach((place) => {
      const data = document.getElementById(place.dataset.figure).textContent;
      if (drawn.get(place) !== data) draw(place);
      drawn.set(place, data);
    });
  };
  document.addEventListener("htmx:after:swap", drawChanged);
  document.addEventListener("motley:shown", drawChanged);
  document.addEventListener("theme", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
})();
