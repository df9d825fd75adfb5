// Numbers and times as people read them.

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

export function bytes(number) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (number < 1024) return `${Math.round(number * 10) / 10} ${unit}`;
    number /= 1024;
  }
  return `${Math.round(number * 10) / 10} GiB`;
}

export function duration(ms) {
  const sign = ms < 0 ? "-" : "";
  let left = Math.abs(ms);
  if (left < 1000) return `${sign}${Math.round(left)} ms`;
  const parts = [];
  for (const [unit, size] of [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000]]) {
    if (left >= size) parts.push(`${Math.floor(left / size)} ${unit}`);
    left %= size;
  }
  return sign + parts.slice(0, 2).join(" ");
}

// In UTC, like every time on the pages.
export function time(ms) {
  const date = new Date(ms);
  return isNaN(date) ? String(ms) : date.toISOString().replace("T", " ").replace(/\.000Z$/, "Z");
}

const REPLAYED_MS = 60_000;

// How long it is until a timed rule fires by time; `clock_ms` is the time by the detector's clock from which on nothing comes.
// The service has a rule fire on time, unless the detector is being replayed: then only events move its clock.
export function remaining(fires_ms, clock_ms, now_ms) {
  const left_ms = fires_ms - now_ms;
  if (left_ms < -REPLAYED_MS) return `${duration(fires_ms - clock_ms)} later by the detector's clock`;
  return left_ms > 0 ? `in ${duration(Math.ceil(left_ms / 1000) * 1000)}` : "now";
}
