"use strict";
// Form and YAML side by side, kept in sync, with the plan of the job. Without this script one side is shown at a time,
// and the buttons above switch between them.
(() => {
  const page = document.getElementById("new-job");
  if (!page) return;
  const PAUSE_MS = 300;
  const FORECAST_PAUSE_MS = 1000; // a forecast takes the service seconds: it is made when nobody types
  const FILES = ["files", "folder"];
  const LISTS = ["gpu_types", "mounts"];
  const yaml = document.getElementById("yaml");
  const plan = document.getElementById("plan");
  const note = document.getElementById("plan-note"); // the live region: what is read out after each check
  const mode = page.elements.mode;
  // Faults that the service showed count as touched: they stay until the field is mended.
  const touched = new Set([...page.querySelectorAll("[data-field].wrong")].map((field) => field.dataset.field));
  let timer = 0;
  let forecastTimer = 0;
  let latest = 0;
  let tableOpen = false;
  let written = false; // as loaded, both sides agree; not filling them keeps the user's cursor where it is

  page.classList.add("side-by-side");
  page.querySelectorAll("[data-side]").forEach((side) => { side.hidden = false; });
  page.querySelectorAll("[data-only-without-script]").forEach((part) => { part.hidden = true; });

  const fieldOf = (name) => page.querySelector(`[data-field="${name}"]`);

  const showFault = (name, text) => {
    const field = fieldOf(name);
    if (!field) return;
    field.querySelectorAll(".fault").forEach((fault) => fault.remove());
    field.classList.toggle("wrong", Boolean(text));
    field.querySelectorAll("input, select, textarea").forEach((input) => {
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    });
    if (!text) return;
    const fault = document.createElement("p");
    fault.className = "fault";
    fault.textContent = text;
    field.append(fault);
  };

  const fill = (fields) => {
    for (const input of page.querySelectorAll("[data-side=form] [name]")) {
      if (FILES.includes(input.name) || input.name === "paths") continue;
      const value = fields[input.name];
      if (input.type === "checkbox" && LISTS.includes(input.name)) input.checked = (value || []).includes(input.value);
      else if (input.type === "checkbox") input.checked = Boolean(value);
      else input.value = value ?? "";
    }
  };

  // What has not changed is not read out again.
  const tell = (...parts) => {
    if (parts.map((part) => part.textContent).join("") !== note.textContent) note.replaceChildren(...parts);
  };

  const tellText = (text) => {
    const words = document.createElement("p");
    words.className = "dim";
    words.textContent = text;
    tell(words);
  };

  // The table of the chart stays open, and its summary keeps the focus.
  const replacePlan = (html) => {
    const before = plan.querySelector("details");
    if (before) tableOpen = before.open;
    const hadFocus = before?.contains(document.activeElement);
    plan.innerHTML = html; // our own template, escaped by Django
    const after = plan.querySelector("details");
    if (!after) return;
    after.open = tableOpen;
    if (hadFocus) after.querySelector("summary").focus({ preventScroll: true });
  };

  const list = (faults) => {
    const items = faults.map((fault) => {
      const item = document.createElement("li");
      if (fault.pointer) {
        const where = document.createElement("code");
        where.textContent = fault.pointer;
        item.append(where, " ");
      }
      item.append(fault.detail);
      return item;
    });
    const words = document.createElement("p");
    words.className = "dim";
    words.textContent = faults.length === 1 ? "Fix before submitting:" : `${faults.length} errors to fix before submitting:`;
    const other = mode.value === "yaml" ? "form" : "YAML";
    if (written) words.textContent = `The ${other} shows the last valid job. ${words.textContent}`;
    const all = document.createElement("ul");
    all.className = "faults";
    all.append(...items);
    replacePlan("");
    tell(words, all);
  };

  const show = (answer) => {
    if (written && "yaml" in answer) yaml.value = answer.yaml;
    if (written && answer.fields) fill(answer.fields);
    const wholly = mode.value === "yaml";
    page.querySelectorAll("[data-field]").forEach((field) => {
      const name = field.dataset.field;
      showFault(name, wholly || touched.has(name) ? answer.by_field[name] : "");
    });
    const wrong = page.querySelector(".advanced .wrong");
    if (wrong) wrong.closest("details").open = true;
    if (!answer.plan) return list(answer.faults);
    replacePlan(answer.plan);
    tellText(answer.note);
    document.dispatchEvent(new CustomEvent("motley:shown"));
    forecastTimer = setTimeout(forecast, FORECAST_PAUSE_MS);
  };

  const post = async (address) => {
    const body = new FormData(page);
    FILES.forEach((name) => body.delete(name)); // they are sent once, with the job
    const response = await fetch(address, { method: "POST", body, redirect: "error" });
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.json();
  };

  const forecast = async () => {
    const asked = latest;
    const place = document.getElementById("plan-forecast");
    place.textContent = "The queue is played forward with this job …";
    let shown = "";
    try {
      shown = (await post(page.dataset.forecast)).forecast;
    } catch {
      // the plan stands without it
    }
    if (asked !== latest) return;
    place.innerHTML = shown; // our own template, escaped by Django
    document.dispatchEvent(new CustomEvent("motley:shown"));
  };

  const showNoPlan = () => {
    replacePlan("");
    tellText("The plan is not available at the moment; you can still submit the job.");
  };

  const check = async () => {
    const asked = ++latest;
    plan.setAttribute("aria-busy", "true");
    try {
      const answer = await post(page.dataset.check);
      if (asked === latest) show(answer);
    } catch {
      if (asked === latest) showNoPlan();
    }
    if (asked === latest) plan.removeAttribute("aria-busy");
  };

  // The number of steps of an example is that of its command, and no estimate of another's length.
  const dropStepsOfExample = (edited) => {
    if (!("example" in page.dataset) || edited !== page.elements.command || touched.has("total_steps")) return;
    page.elements.total_steps.value = "";
  };

  page.addEventListener("input", (event) => {
    if (!event.target.name) return;
    if (FILES.includes(event.target.name)) return;
    dropStepsOfExample(event.target);
    mode.value = event.target === yaml ? "yaml" : "form";
    touched.add(event.target.closest("[data-field]")?.dataset.field);
    written = true;
    latest += 1; // discards an answer to earlier input
    clearTimeout(timer);
    clearTimeout(forecastTimer);
    timer = setTimeout(check, PAUSE_MS);
  });
  // The form sends names of files without their folders.
  page.addEventListener("submit", () => {
    const files = [...page.elements.folder.files];
    page.elements.paths.value = files.map((file) => file.webkitRelativePath).join("\n");
  });
  check();
})();
