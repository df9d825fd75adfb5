// The moments of a timeline that a page keeps. They have the numbers of the detector's events, and the newest comes last.

// Joins what is kept with what has come: the new moments, and the last `most` of all. Some come again after a reconnection.
export function joined(kept, come, most) {
  const last = kept.at(-1)?.number ?? 0;
  const added = come.filter((moment) => moment.number > last);
  return { kept: [...kept, ...added].slice(-most), added };
}
