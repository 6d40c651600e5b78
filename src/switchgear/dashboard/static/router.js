// Routes are in the fragment: #/jobs?function=mail&state=failed.  Filters are part of it, so every view is a link.

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const segments = path.split("/").filter(Boolean);
  return { view: segments[0] || "overview", key: segments.slice(1).join("/"), query: Object.fromEntries(new URLSearchParams(query)) };
}

export function link(view, key = "", query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    parameters.set(name, Array.isArray(value) ? value.join(",") : value === true ? "1" : value);
  }
  const text = parameters.toString();
  return `#/${view}${key ? `/${key}` : ""}${text ? `?${text}` : ""}`;
}

export const current = () => parse(location.hash);
export const go = (target) => { location.hash = target; };

// Change filters of the present view; the cursor belongs to the old filters.
export function refine(changes, { replace = false } = {}) {
  const route = current();
  const target = link(route.view, route.key, { ...route.query, cursor: "", ...changes });
  if (replace) {
    history.replaceState(null, "", target);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    go(target);
  }
}

// For links: the present view with some filters changed.
export function refined(changes) {
  const route = current();
  return link(route.view, route.key, { ...route.query, cursor: "", ...changes });
}

// A name as the fragment has it, to be read by people.
export function readable(key) {
  try {
    return decodeURIComponent(key);
  } catch {
    return key;
  }
}
