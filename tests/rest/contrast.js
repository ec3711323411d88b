// Texts of the page whose contrast with what is below them is less than 4.5, as WCAG 2 computes it.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat([1]);
  const linear = (v) => (v / 255 <= .04045 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
  const around = (element) => { const all = []; for (let e = element; e; e = e.parentElement) all.push(e); return all; };
  const contrast = (element) => {
    const boxes = around(element);
    const below = boxes.reduceRight((under, e) => over(rgba(getComputedStyle(e).backgroundColor), under), [255, 255, 255, 1]);
    const ink = rgba(getComputedStyle(element).color);
    ink[3] *= boxes.reduce((opacity, e) => opacity * getComputedStyle(e).opacity, 1);
    const [a, b] = [luminance(over(ink, below)), luminance(below)];
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faults = new Set();
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim(), element = texts.currentNode.parentElement;
    if (!text || !element.checkVisibility({ visibilityProperty: true }) || element.closest("script, style, [disabled]")) continue;
    if (contrast(element) < 4.5) faults.add(`${element.tagName}.${element.className}: ${contrast(element).toFixed(2)}`);
  }
  return [...faults];
}
