// The texts of a page that do not stand out from what is behind them (WCAG 2.2, 1.4.3).
const parse = (text) => { const n = text.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = (text) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
  const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255];
};
const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat([1]);
const light = (c) => { const f = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
const faint = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].filter((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own.length || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  if (element.closest('.unseen, .skip, [aria-hidden=true], datalist, svg, dialog:not([open])')) continue;
  const chain = []; for (let e = element; e; e = e.parentElement) chain.unshift(getComputedStyle(e).backgroundColor);
  const back = chain.reduce((under, text) => over(rgba(text), under), rgba(getComputedStyle(document.body).backgroundColor));
  const front = over(rgba(getComputedStyle(element).color), back);
  const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className}: ${own[0].textContent.trim().slice(0, 40)}`);
}
return faint;
