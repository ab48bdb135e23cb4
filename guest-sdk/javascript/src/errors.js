// The errors of a job and of a chunk.

/** The failure of a job that its handler cannot complete: throw one of the three classes below. */
export class GristmillError extends Error {
  constructor(message, details) {
    super(message);
    this.name = new.target.name;
    this.details = details;
  }
}

/** The handler does not accept the input. */
export class InvalidInput extends GristmillError {}

/** The work could not be done. */
export class Failed extends GristmillError {}

/** The handler stopped because `ctx.cancelled` was true. */
export class Cancelled extends GristmillError {
  constructor() {
    super("cancelled");
  }
}

/** Why a chunk was not added to the job's stream. */
export class EmitError extends Error {
  constructor(kind, why, limitBytes) {
    super(
      {
        closed: "stream is closed: the attempt is over",
        "invalid-json": `chunk is not JSON: ${why}`,
        "quota-exceeded": `chunks exceed the attempt's limit: ${limitBytes} bytes`,
      }[kind],
    );
    this.name = "EmitError";
    this.kind = kind;
    this.limitBytes = limitBytes;
  }
}

/** Why a call of another endpoint has no result. */
export class CallError extends Error {
  constructor(kind, why, job) {
    super(job ? `job \`${job.id}\` is ${job.status}: ${job.error}` : why);
    this.name = "CallError";
    this.kind = kind;
    this.job = job;
  }
}
