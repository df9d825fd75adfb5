// How long it is until a timed rule fires because time passes, counted down.

import { h } from "./dom.js";
import { remaining, time } from "./format.js";
import { serverNow } from "./service.js";

const TURN_MS = 250;

// A line that counts down while it is shown. `clock_ms` is the time by the detector's clock from which on nothing comes.
export function countdown(said, fires_ms, clock_ms) {
  const left = h("strong", { role: "timer" });
  const count = () => { left.textContent = remaining(fires_ms, clock_ms, serverNow()); };
  const counting = setInterval(() => (left.isConnected ? count() : clearInterval(counting)), TURN_MS);
  count();
  return h("p", { class: "countdown" }, `${said} at ${time(fires_ms)}, `, left, ".");
}
