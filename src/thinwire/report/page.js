'use strict';
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Pointing at a series shows it alone; a tap or click keeps it so.
let kept = null;
const focusOn = name => {
  document.body.classList.toggle('focused', name !== null);
  for (const e of all('.chart [data-recipe], .summary [data-recipe]'))
    e.classList.toggle('on', e.dataset.recipe === name);
};
const seriesAt = event => {
  const found = event.target.closest('.chart [data-recipe], .summary [data-recipe]');
  return found ? found.dataset.recipe : null;
};
document.addEventListener('mouseover', event => focusOn(seriesAt(event) ?? kept));
document.addEventListener('click', event => {
  const name = seriesAt(event);
  if (name === null) return;
  kept = kept === name ? null : name;
  focusOn(kept);
});

// With the keyboard: a key is one stop, its names are reached by the arrow keys.
for (const chart of all('.chart')) {
  const names = all('.key[data-recipe]', chart).filter(e => e.querySelector('text'));
  if (names.length) chart.setAttribute('role', 'group'); // an image has no buttons in it
  names.forEach((name, place) => {
    name.setAttribute('role', 'button');
    name.setAttribute('aria-label', `${name.dataset.recipe} alone`);
    name.setAttribute('tabindex', place ? -1 : 0);
    name.addEventListener('focus', () => focusOn(name.dataset.recipe));
    name.addEventListener('blur', () => focusOn(kept));
    name.addEventListener('keydown', event => {
      const turn = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (turn) {
        const next = names[(place + turn + names.length) % names.length];
        for (const other of names) other.setAttribute('tabindex', other === next ? 0 : -1);
        next.focus();
      } else if (event.key === 'Enter' || event.key === ' ') {
        kept = kept === name.dataset.recipe ? null : name.dataset.recipe;
      } else if (event.key === 'Escape') {
        kept = null;
        name.blur();
      } else return;
      event.preventDefault();
    });
  });
}

// A heading sorts its table by the column: numbers, then words, and what is empty last.
const ranked = cell => {
  const text = (cell.dataset.value ?? cell.textContent).trim();
  const number = Number(text.replaceAll(',', '').split(' ')[0]);
  return { kind: text === '' ? 2 : Number.isNaN(number) ? 1 : 0, number, text };
};
const sortBy = (table, column, direction) => {
  const rows = [...table.tBodies[0].rows].map(row => [ranked(row.cells[column]), row]);
  rows.sort(([a], [b]) => a.kind - b.kind
    || direction * (a.kind ? a.text.localeCompare(b.text) : a.number - b.number));
  table.tBodies[0].append(...rows.map(([, row]) => row));
};
for (const head of all('.found th, .summary th')) {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'sort';
  button.append(...head.childNodes);
  head.append(button);
  head.setAttribute('aria-sort', 'none');
  button.addEventListener('click', () => {
    const up = head.getAttribute('aria-sort') !== 'ascending';
    for (const other of head.parentNode.cells) other.setAttribute('aria-sort', 'none');
    head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    sortBy(head.closest('table'), head.cellIndex, up ? 1 : -1);
  });
}

// A filter hides rows of its table, and fades what has no row left: in the figures of its section,
// in those of the page where it has none.
const applyFilter = form => {
  const section = form.closest('section');
  const words = form.querySelector('input').value.toLowerCase().split(/\s+/).filter(Boolean);
  const choices = all('select', form).filter(select => select.selectedIndex > 0);
  const rows = all('tbody tr', section);
  const shown = new Set();
  let count = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    const fits = words.every(word => text.includes(word))
      && choices.every(s => row.cells[s.dataset.column].textContent === s.value);
    row.hidden = !fits;
    if (fits) { count += 1; shown.add(row.dataset.recipe); }
  }
  const known = new Set(rows.map(row => row.dataset.recipe));
  form.querySelector('output').textContent = `${count} of ${rows.length} rows`;
  const figures = section.querySelector('.chart') ? section : document;
  for (const e of all('.chart [data-recipe]', figures))
    e.classList.toggle('off', known.has(e.dataset.recipe) && !shown.has(e.dataset.recipe));
};
for (const form of all('.filters')) {
  form.addEventListener('input', () => applyFilter(form));
  form.addEventListener('submit', event => event.preventDefault());
  applyFilter(form); // browsers keep what was typed when a page is loaded again
}

// A figure is saved as it is seen: these colours, without what is filtered out.
const standalone = chart => {
  const copy = chart.cloneNode(true);
  for (const e of all('.off', copy)) e.remove();
  const [, , width, height] = chart.getAttribute('viewBox').split(' ').map(Number);
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('width', width);
  copy.setAttribute('height', height);
  copy.setAttribute('font-family', 'system-ui, sans-serif');
  const paper = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
  for (const [name, value] of Object.entries({ width, height, style: 'fill: var(--paper)' }))
    paper.setAttribute(name, value);
  copy.prepend(paper);
  const colours = getComputedStyle(document.documentElement);
  const text = new XMLSerializer().serializeToString(copy)
    .replace(/var\((--[\w-]+)\)/g, (_, name) => colours.getPropertyValue(name).trim());
  return { blob: new Blob([text], { type: 'image/svg+xml' }), width, height };
};
const save = (blob, name) => {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
const savePng = ({ blob, width, height }, name) => {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement('canvas');
    canvas.width = 3 * width;
    canvas.height = 3 * height;
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(image.src);
    canvas.toBlob(png => save(png, name), 'image/png');
  };
  image.src = URL.createObjectURL(blob);
};
for (const button of all('button[data-save]'))
  button.addEventListener('click', () => {
    const figure = button.closest('figure');
    const drawn = standalone(figure.querySelector('.chart'));
    const name = `${figure.id}.${button.dataset.save}`;
    if (button.dataset.save === 'png') savePng(drawn, name);
    else save(drawn.blob, name);
  });
