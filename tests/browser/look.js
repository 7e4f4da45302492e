// What a test asks of a page. Colours are those that the browser has computed.

function channels(colour) {
  const found = colour.match(/[\d.]+/g).map(Number);
  return found.length === 3 ? [...found, 1] : found;
}

function over(above, below) {
  const [r, g, b, a] = above;
  return [r, g, b].map((each, place) => each * a + below[place] * (1 - a)).concat(1);
}

function luminance(colour) {
  const [r, g, b] = colour.slice(0, 3).map(each => {
    const share = each / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function behind(element) {
  const rect = element.closest("g")?.querySelector("rect");
  if (rect && element.tagName === "text" && getComputedStyle(rect).fill !== "none") {
    return channels(getComputedStyle(rect).fill);
  }
  const layers = [];
  for (let each = element; each; each = each.parentElement) {
    const colour = channels(getComputedStyle(each).backgroundColor);
    if (colour[3] > 0) layers.push(colour);
    if (colour[3] === 1) break;
  }
  return layers.reverse().reduce((below, above) => over(above, below), [255, 255, 255, 1]);
}

// Where the part ends that is shown of what has a scroll bar.
function endOfScrolled(element) {
  for (let each = element; each; each = each.parentElement) {
    if (getComputedStyle(each).overflowY === "auto") return each.getBoundingClientRect().bottom;
  }
  return Infinity;
}

function shownTexts() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.textContent.trim() || ["TITLE", "STYLE", "SCRIPT", "title"].includes(element.tagName)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const end = endOfScrolled(element);
    const boxes = [...range.getClientRects()].filter(box => box.width > 1 && box.height > 1 && box.bottom <= end);
    if (boxes.length && element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) found.push({ node, element, boxes });
  }
  return found;
}

function faintTexts() {
  return shownTexts().flatMap(({ node, element }) => {
    const style = getComputedStyle(element), isSvg = element.namespaceURI.endsWith("svg");
    const below = behind(element), above = over(channels(isSvg ? style.fill : style.color), below);
    const [light, dark] = [luminance(above), luminance(below)].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    return contrast < 4.5 ? [`${contrast.toFixed(2)} ${node.textContent.trim().slice(0, 60)}`] : [];
  });
}

function hidden(element) {
  for (let each = element; each && each !== document.body; each = each.parentElement) {
    const style = getComputedStyle(each);
    if (style.clipPath !== "none") return true;
  }
  return false;
}

function cutTexts() {
  const found = [], wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) found.push(`the page is ${wide} wide, and the window ${innerWidth}`);
  const texts = shownTexts().filter(({ element }) => !hidden(element));
  for (const { node, element, boxes } of texts) {
    const said = node.textContent.trim().slice(0, 60);
    if (boxes.some(box => box.left < -0.5 || box.right > innerWidth + 0.5)) found.push(`beyond the window: ${said}`);
    const style = getComputedStyle(element);
    if (style.overflowX === "hidden" && element.scrollWidth > element.clientWidth + 1) found.push(`cut: ${said}`);
  }
  const boxes = texts.flatMap(({ node, boxes }) => boxes.map(box => ({ node, box })));
  boxes.sort((a, b) => a.box.top - b.box.top);
  boxes.forEach((one, place) => {
    for (const other of boxes.slice(place + 1)) {
      if (other.box.top >= one.box.bottom - 3) break;
      const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const high = Math.min(one.box.bottom, other.box.bottom) - other.box.top;
      if (other.node !== one.node && wide > 1 && high > 3) {
        found.push(`one above the other: ${one.node.textContent.trim().slice(0, 40)} | ${other.node.textContent.trim().slice(0, 40)}`);
      }
    }
  });
  return found;
}

function focused() {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const style = getComputedStyle(element);
  const isSeen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const place = [...document.querySelectorAll("*")].indexOf(element);
  return `${place} ${element.tagName.toLowerCase()} ${element.textContent.trim().slice(0, 60)} ${isSeen ? "!" : "?"}`;
}
