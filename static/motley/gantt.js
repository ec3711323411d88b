"use strict";
// Gantt charts: the bars of a figure as one outline for each colour and opacity, and what is told of the bar under the pointer.
// An element for each of ten thousand bars, as Plotly draws them, takes a second and a half.
const Gantt = (() => {
  const UNITS = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
  const APART_PX = 14; // between the pointer and the label
  const [CHARACTER_PX, SYMBOL_PX, AXIS_PX] = [8, 50, 150]; // of an entry of the legend, and beside the legend
  const drawn = new WeakMap(); // outlines and the end of the time shown, by the place of the chart
  const label = document.createElement("div");
  label.className = "bar-label";
  label.hidden = true;
  document.body.append(label);

  const barsOf = (trace) => trace.base.map((start, i) => ({
    start,
    end: start + trace.x[i],
    top: trace.y[i] - trace.width[i] / 2,
    foot: trace.y[i] + trace.width[i] / 2,
    opacity: trace.marker.opacity?.[i] ?? 1,
    text: trace.customdata[i][0],
    link: trace.customdata[i][1],
  }));
  const grouped = (items, keyOf) => {
    const groups = new Map();
    for (const item of items) {
      const key = keyOf(item);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(item);
    }
    return groups;
  };
  const outlinesOf = (trace) => {
    const alike = grouped(barsOf(trace), (bar) => bar.opacity);
    const [first, ...others] = [...alike].sort(([one], [other]) => other - one);
    const of = ([opacity, bars], inLegend) => ({ trace, opacity, bars, inLegend });
    return [of(first, trace.showlegend), ...others.map((one) => of(one, false))];
  };

  // From the left along the foot of the bars of a row and back, and then to the next row: what joins them covers nothing.
  const outline = ({ trace, opacity, bars, inLegend }, left) => {
    const [x, y] = [[], []];
    for (const [foot, row] of grouped(bars, (bar) => bar.foot)) {
      x.push(left);
      y.push(foot);
      for (const { start, end, top } of row) {
        x.push(start, start, end, end);
        y.push(foot, top, top, foot);
      }
      x.push(left);
      y.push(foot);
    }
    const fill = trace.marker.pattern ? { fillpattern: trace.marker.pattern } : {};
    const { name, legendgroup, marker: { color: fillcolor } } = trace;
    const look = { fill: "toself", fillcolor, opacity, mode: "none", line: { simplify: false }, hoverinfo: "skip", ...fill };
    return { type: "scatter", name, legendgroup, showlegend: inLegend, x, y, ...look };
  };
  // Plotly shows a number on a date axis in the zone of the browser, and a text as it is written: bars are in the zone of the page.
  const written = (milliseconds) => new Date(milliseconds).toISOString().slice(0, -1);
  const tracesOf = (place, figure) => {
    const [left, until] = figure.layout.xaxis.range.map((time) => Date.parse(`${time.slice(0, 19)}Z`));
    const outlines = figure.data.flatMap(outlinesOf);
    drawn.set(place, { outlines, until });
    return outlines.map((one) => outline(one, left)).map((trace) => ({ ...trace, x: trace.x.map(written) }));
  };

  const legendLines = ({ data }, width) => {
    const entries = data.filter((trace) => trace.showlegend).map((trace) => trace.name.length * CHARACTER_PX + SYMBOL_PX);
    return Math.ceil(entries.reduce((sum, px) => sum + px, 0) / (width - AXIS_PX));
  };

  // The last that was drawn is on top. By the event, because Plotly's values are those of the last move that it heeded.
  const barAt = (place, { clientX, clientY }) => {
    const { xaxis, yaxis } = place._fullLayout;
    const { left, top } = place.querySelector(".nsewdrag").getBoundingClientRect();
    const [time, row] = [xaxis.p2c(clientX - left), yaxis.p2c(clientY - top)];
    const isThere = (bar) => bar.start <= time && time < bar.end && bar.top <= row && row <= bar.foot;
    const shown = drawn.get(place).outlines.filter((_, i) => (place.data[i].visible ?? true) === true);
    return shown.map(({ bars }) => bars.find(isThere)).findLast(Boolean);
  };
  const length = (milliseconds) => {
    let left = Math.max(1, Math.round(milliseconds / 1000));
    const parts = UNITS.map(([name, size]) => {
      const count = Math.floor(left / size);
      left -= count * size;
      return count ? `${count} ${name}` : "";
    });
    const first = parts.findIndex(Boolean);
    return parts.slice(first, first + 2).filter(Boolean).join(" ");
  };
  const clock = (milliseconds) => new Date(milliseconds).toUTCString().replace(/^\w+, (\d+ \w+) \d+ (.*) GMT$/, "$1 $2");
  const times = ({ start, end }, until) => {
    const [from, to] = [clock(start), clock(end)];
    return end < until ? `from ${from} to ${to}, ${length(end - start)}` : `from ${from} on`;
  };
  const show = (place, event) => {
    const bar = barAt(place, event);
    label.hidden = !bar;
    if (!bar) return;
    label.innerHTML = bar.text; // escaped by the server
    label.append(document.createElement("br"), times(bar, drawn.get(place).until));
    const { clientX: x, clientY: y } = event;
    const [right, bottom] = [innerWidth - label.offsetWidth, innerHeight - label.offsetHeight];
    label.style.left = `${Math.max(0, x + APART_PX > right ? Math.min(x - APART_PX - label.offsetWidth, right) : x + APART_PX)}px`;
    label.style.top = `${Math.max(0, Math.min(y + APART_PX, bottom))}px`;
  };
  const hide = () => { label.hidden = true; };
  const open = (place, event) => {
    const link = barAt(place, event)?.link;
    if (link) location.href = link;
  };
  const follow = (place) => {
    place.on("plotly_hover", ({ event }) => show(place, event));
    place.on("plotly_unhover", hide);
    place.on("plotly_click", ({ event }) => open(place, event));
    place.addEventListener("mouseleave", hide);
    addEventListener("scroll", hide, { passive: true });
  };
  return { tracesOf, legendLines, follow };
})();
