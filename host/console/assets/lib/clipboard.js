// Copies text, and says whether that worked: pages without TLS have no clipboard API, so the second way
// is a hidden text field.

/** @param {string} text @returns {Promise<boolean>} */
export async function copy(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* not a secure context */ }
  const field = document.createElement('textarea');
  field.value = text;
  field.className = 'off-screen';
  document.body.append(field);
  field.select();
  const worked = document.execCommand('copy');
  field.remove();
  return worked;
}
