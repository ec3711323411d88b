"use strict";
// Follows a merged log from where the server-rendered page ends. Output of a job is inserted as text only, never as HTML.
const followLog = (log) => {
  const MOST_LINES = 20_000;
  const PAUSE_MS = 2000;
  const mark = document.getElementById("log-mark");
  const follow = document.getElementById("follow");
  const unfinished = document.getElementById("log-unfinished");
  const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZone: document.documentElement.dataset.zone });
  const isGang = log.dataset.gang === "yes";
  let cursor = log.dataset.cursor;
  let complete = log.dataset.complete === "true";
  let toldMs = 0; // when many follow logs, the service says when to come again

  const toEnd = () => { if (follow.checked) log.scrollTop = log.scrollHeight; };

  // Time and stream stand beside a line by the style sheet, so that copied text has only what the job wrote.
  const note = (line) => {
    if (line.dataset.at) line.dataset.mark = `${time.format(new Date(line.dataset.at))} `;
    else line.dataset.mark = "";
    if (isGang) line.dataset.gang = "yes";
  };

  const pieceOf = ({ text, style }) => {
    if (!style) return document.createTextNode(text);
    const piece = document.createElement("span");
    piece.className = style;
    piece.textContent = text;
    return piece;
  };

  const lineOf = (told) => {
    const line = document.createElement("span");
    line.className = `log-line ${told.stream}`;
    Object.assign(line.dataset, { stream: told.stream, rank: told.rank, at: told.at ?? "" });
    note(line);
    line.append(...told.pieces.map(pieceOf), "\n");
    return line;
  };

  const take = async (answer) => {
    const told = await answer.json();
    unfinished.before(...told.lines.map(lineOf));
    unfinished.replaceChildren(...told.unfinished.map(lineOf));
    while (log.children.length > MOST_LINES) log.firstElementChild.remove();
    ({ next: cursor, complete } = told);
    toldMs = 1000 * Number(answer.headers.get("Retry-After"));
    toEnd();
    return told.more || told.lines.length > 0;
  };

  const look = async () => {
    try {
      const address = `${log.dataset.url}&cursor=${encodeURIComponent(cursor)}&wait=5`;
      const answer = await fetch(address, { credentials: "same-origin" });
      const hasMore = answer.ok && await take(answer);
      mark.textContent = complete ? "complete" : answer.ok ? "following" : `error ${answer.status}, retrying`;
      return { isReached: answer.ok, hasMore };
    } catch {
      mark.textContent = "service not reachable, retrying";
      return { isReached: false, hasMore: false };
    }
  };

  const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
  const seen = () => new Promise((resolve) => {
    if (!document.hidden) resolve();
    else document.addEventListener("visibilitychange", resolve, { once: true });
  });

  (async () => {
    document.querySelector("[data-follow]").hidden = complete;
    log.querySelectorAll(".log-line").forEach(note);
    follow.addEventListener("change", toEnd);
    log.addEventListener("wheel", (event) => { if (event.deltaY < 0) follow.checked = false; }, { passive: true });
    toEnd();
    while (!complete && log.isConnected) {
      await seen();
      const { isReached, hasMore } = await look();
      await pause(Math.max(hasMore ? 0 : PAUSE_MS, isReached ? toldMs : 0));
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
