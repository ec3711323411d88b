"use strict";
// Follows a log from where the server-rendered page ends. Output of a job is inserted as text only, never as HTML.
const followLog = (log) => {
  const MOST_CHARACTERS = 2_000_000;
  const PAUSE_MS = 2000;
  const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;
  const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
  const mark = document.getElementById("log-mark");
  const follow = document.getElementById("follow");
  const decoder = new TextDecoder(); // keeps a character that is split between two chunks
  let offset = Number(log.dataset.offset);
  let complete = log.dataset.complete === "true";
  let text = log.textContent;
  let toldMs = 0; // when many follow logs, the service says when to come again

  const readable = (raw) =>
    raw.replace(ESCAPES, "").replace(/\r\n/g, "\n").replace(/[^\n]*\r(?!\n|$)/g, "").replace(CONTROLS, "");

  const toEnd = () => { if (follow.checked) log.scrollTop = log.scrollHeight; };

  const take = async (answer) => {
    text = readable(text + decoder.decode(await answer.arrayBuffer(), { stream: true })).slice(-MOST_CHARACTERS);
    offset = Number(answer.headers.get("Motley-Next-Offset"));
    complete = answer.headers.get("Motley-Log-Complete") === "true";
    toldMs = 1000 * Number(answer.headers.get("Retry-After"));
    // Growing the text node keeps a selection; only an overwritten line needs a new one.
    const node = log.firstChild;
    if (node && text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
    else log.textContent = text;
    toEnd();
  };

  const look = async () => {
    try {
      const answer = await fetch(`${log.dataset.url}&offset=${offset}&wait=5`, { credentials: "same-origin" });
      if (answer.ok) await take(answer);
      mark.textContent = complete ? "complete" : answer.ok ? "following" : `error ${answer.status}, retrying`;
      return answer.ok;
    } catch {
      mark.textContent = "service not reachable, retrying";
      return false;
    }
  };

  const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
  const seen = () => new Promise((resolve) => {
    if (!document.hidden) resolve();
    else document.addEventListener("visibilitychange", resolve, { once: true });
  });

  (async () => {
    document.querySelector("[data-follow]").hidden = false;
    follow.addEventListener("change", toEnd);
    log.addEventListener("wheel", (event) => { if (event.deltaY < 0) follow.checked = false; }, { passive: true });
    toEnd();
    while (!complete && log.isConnected) {
      await seen();
      const before = offset;
      const reached = await look();
      const pauseMs = reached && offset !== before ? 0 : PAUSE_MS;
      await pause(Math.max(pauseMs, reached ? toldMs : 0));
    }
  })();
};

// If a job starts while its page is open, the log element arrives with a live update.
(() => {
  let followed = null;
  const look = () => {
    const log = document.getElementById("log");
    if (!log || log === followed) return;
    followed = log;
    followLog(log);
  };
  document.addEventListener("htmx:after:swap", look);
  look();
})();
