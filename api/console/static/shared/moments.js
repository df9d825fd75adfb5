// The moments of a timeline that a page keeps. They are numbered, and the newest comes last.

// Joins what is kept with what has come: the new moments, and the last `most` of all.
export function joined(kept, come, most) {
  const last = kept.at(-1)?.number ?? 0;
  // After a reconnection the timeline may have begun anew.
  const before = come.length && come[0].number > last + 1 ? [] : kept;
  const added = come.filter((moment) => moment.number > last || !before.length);
  return { kept: [...before, ...added].slice(-most), added };
}
