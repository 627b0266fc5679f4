// Accessibility rules of our own; returns what breaks them, as sentences.
(() => {
  const wrong = [];
  const seen = (node) => node.getClientRects().length > 0 && node.checkVisibility({ visibilityProperty: true });

  if (document.querySelectorAll("h1").length !== 1) wrong.push("a page has exactly one h1");
  if (document.querySelectorAll("main").length !== 1) wrong.push("a page has exactly one main");
  if (!document.querySelector("nav[aria-label]")) wrong.push("navigation has no label");
  if (!document.documentElement.lang) wrong.push("the language is not named");
  if (!document.title) wrong.push("there is no title");

  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) wrong.push(`two elements are called ${id}`);
  for (const node of document.querySelectorAll("[aria-labelledby]")) {
    if (!document.getElementById(node.getAttribute("aria-labelledby"))) wrong.push(`nothing is called ${node.getAttribute("aria-labelledby")}`);
  }
  for (const node of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
    if (!node.labels.length && !node.getAttribute("aria-label")) wrong.push(`a field without a label: ${node.name}`);
  }
  for (const node of document.querySelectorAll("a[href], button, summary")) {
    if (seen(node) && !node.textContent.trim() && !node.getAttribute("aria-label")) wrong.push(`nothing to read on ${node.outerHTML.slice(0, 80)}`);
  }
  for (const node of document.querySelectorAll("svg")) {
    if (node.getAttribute("aria-hidden") !== "true" && !(node.getAttribute("role") === "img" && node.getAttribute("aria-label"))) wrong.push("a picture without a label");
  }
  for (const node of document.querySelectorAll("th")) if (!node.scope) wrong.push(`a heading of a table without a scope: ${node.textContent}`);
  for (const node of document.querySelectorAll("[style], [onclick]")) wrong.push(`inline style or script: ${node.outerHTML.slice(0, 80)}`);
  for (const node of document.querySelectorAll("time")) if (!node.dateTime || !node.title) wrong.push(`a time without the moment: ${node.textContent}`);

  // Contrast: WCAG's formula, on what is behind the text.
  const parse = (colour) => { const parts = colour.match(/[\d.]+/g).map(Number); return parts.length < 4 ? [...parts, 1] : parts; };
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour[3] > 0.99) return colour;
    }
    return [255, 255, 255, 1];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((each) => (each /= 255) <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const poor = new Set();
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !seen(node) || node.closest("svg, script")) continue;
    const ratio = contrast(parse(getComputedStyle(node).color), behind(node));
    if (ratio < 4.5) poor.add(`contrast ${ratio.toFixed(2)} of "${walk.currentNode.data.trim().slice(0, 30)}"`);
  }
  wrong.push(...poor);

  // What has the focus can be seen.
  const first = [...document.querySelectorAll("main a[href], main button, main input:not([type=hidden])")].find(seen);
  if (first) {
    first.focus({ focusVisible: true });
    const style = getComputedStyle(first);
    if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) wrong.push(`the focus cannot be seen on ${first.outerHTML.slice(0, 80)} (page ${document.hasFocus()}, element ${document.activeElement === first})`);
    first.blur();
  }
  return wrong;
})()
