"use strict";
// Says the moment while the slider moves, and keeps the address that of the moment shown.
(() => {
  const form = document.getElementById("moment");
  const [slider, told] = [form.elements.at, form.querySelector("output")];
  const words = { dateStyle: "medium", timeStyle: "short", hourCycle: "h23", timeZone: document.documentElement.dataset.zone };

  const tell = () => {
    told.value = new Intl.DateTimeFormat(undefined, words).format(new Date(1000 * slider.value));
    slider.setAttribute("aria-valuetext", told.value);
  };

  slider.addEventListener("input", tell);
  form.addEventListener("change", () => {
    tell();
    history.replaceState(null, "", `?${new URLSearchParams(new FormData(form))}`);
  });
  tell();
})();
