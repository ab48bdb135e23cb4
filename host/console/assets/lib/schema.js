// An example of the values that a JSON Schema allows, with which the playground's input begins. It has the
// required members of each object and is a start for the author's own input: the host says what else is wrong.
// A schema can refer to itself and can be hostile, so an example has at most 16 levels and 300 values, and none
// at all if the schema is no schema.
const LEVELS = 16, VALUES = 300;

/** @param {string} text JSON text of the schema @returns {string | undefined} JSON text */
export function exampleOf(text) {
  try { return JSON.stringify(valueOf(JSON.parse(text)), undefined, 2); } catch { return undefined; }
}

/** @param {any} schema */
function valueOf(schema) {
  let left = VALUES;
  const refers = (at) => typeof at?.$ref === 'string' && at.$ref.startsWith('#/')
    ? at.$ref.slice(2).split('/').reduce((o, part) => Object(o)[decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~')], schema) : undefined;
  const kindOf = (at) => [at.type].flat().find((t) => t && t !== 'null') ?? (at.properties || at.required ? 'object' : at.items ? 'array' : undefined);
  const of = (at, level) => {
    if (!at || typeof at !== 'object' || level > LEVELS || left-- <= 0) return null;
    for (const given of [at.default, at.examples?.[0], at.const, at.enum?.[0]]) if (given !== undefined) return given;
    const other = refers(at) ?? (at.anyOf ?? at.oneOf)?.find((s) => s?.type !== 'null');
    if (other) return of(other, level + 1);
    if (Array.isArray(at.allOf)) return Object.assign({}, ...at.allOf.map((s) => of(s, level + 1)));
    switch (kindOf(at)) {
      case 'object': {
        const wanted = Array.isArray(at.required) ? at.required : Object.keys(Object(at.properties)).slice(0, 8);
        return Object.fromEntries(wanted.filter((n) => typeof n === 'string' && left > 0).map((n) => [n, of(at.properties?.[n], level + 1)]));
      }
      case 'array': return at.prefixItems?.map((s) => of(s, level + 1)) ?? Array.from({ length: Math.min(at.minItems ?? 1, 8) }, () => of(at.items, level + 1));
      case 'string': return { 'date-time': '2026-01-31T12:00:00Z', date: '2026-01-31', uuid: '00000000-0000-4000-8000-000000000000', uri: 'https://example.com/' }[at.format] ?? 'text'.padEnd(Math.min(at.minLength ?? 0, 200), '.').slice(0, at.maxLength);
      case 'integer': case 'number': return at.minimum ?? (at.exclusiveMinimum !== undefined ? at.exclusiveMinimum + 1 : Math.min(at.maximum ?? 1, 1));
      case 'boolean': return false;
      default: return null;
    }
  };
  return of(schema, 0);
}
