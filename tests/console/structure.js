// What hinders people who use a keyboard or a screen reader.
const wrong = [];
const say = (element, what) => wrong.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
const named = (e) => (e.getAttribute('aria-label') || e.labels?.[0]?.textContent || '').trim()
  || (e.getAttribute('aria-labelledby') || '').split(' ').map((id) => document.getElementById(id)?.textContent || '').join('').trim();
if (document.documentElement.lang !== 'en') wrong.push('the page has no language');
if (!document.title) wrong.push('the page has no title');
if (document.querySelectorAll('main').length !== 1) wrong.push('a page has one main part');
if (document.querySelectorAll('h1').length !== 1) wrong.push('a page has one first heading');
if (!document.querySelector('[aria-live=polite]')) wrong.push('nothing tells of changes');
let last = 0;
for (const h of document.querySelectorAll('h1, h2, h3, h4')) {
  if (h.closest('dialog')) continue;
  const level = Number(h.tagName[1]); if (level > last + 1) say(h, 'a level of headings is left out'); last = level;
}
for (const e of document.querySelectorAll('input:not([type=hidden]), select, textarea')) if (!named(e)) say(e, 'a field without a label');
for (const e of document.querySelectorAll('a, button')) if (!(e.textContent.trim() || named(e))) say(e, 'without a text');
for (const e of document.querySelectorAll('nav, meter, [role=region], [role=img]')) if (!named(e)) say(e, 'without a name');
for (const e of document.querySelectorAll('table')) {
  if (!e.querySelector('thead th')) say(e, 'a table without headers');
  if (e.querySelector('thead th:not([scope=col])')) say(e, 'a header without scope');
  if (e.querySelector('tbody tr:not(:has(th[scope=row]))')) say(e, 'a row without a header');
}
for (const e of document.querySelectorAll('img:not([alt])')) say(e, 'a picture without a text');
const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) wrong.push(`the id ${id} is there twice`);
for (const e of document.querySelectorAll('.scroll')) if (e.tabIndex !== 0) say(e, 'the keyboard cannot scroll it');
return wrong;
