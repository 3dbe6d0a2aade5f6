// Pages that stand in place of the views, and the help.
import { html, Component, useEffect, useRef } from './dom.js';
import { DEFINITIONS } from './definitions.js';
import { age, clean } from './format.js';

export function LoginPage({ live, wasLive }) {
  const field = useRef(null);
  useEffect(() => field.current?.focus(), []);
  const submit = (event) => {
    event.preventDefault();
    const token = field.current.value.trim();
    field.current.value = '';
    // A header holds visible ASCII only; other text is not a token.
    if (/^[\x21-\x7e]+$/.test(token)) live.logIn(token);
    else field.current.focus();
  };
  const problem = live.rejectedToken
    ? wasLive
      ? 'The token is no longer accepted. It was changed or revoked.'
      : 'This token is wrong.'
    : null;
  return html`<main class="page"><h1>tokengauge console</h1>
    <form class="login" onSubmit=${submit} autocomplete="off">
      <label for="token">Admin token</label>
      <input id="token" type="password" ref=${field} autocomplete="off" spellcheck="false" aria-describedby="token-note" required />
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      <p id="token-note">The token of <code>admin.token_file</code> or <code>TOKENGAUGE_ADMIN_TOKEN</code>. This page keeps it in memory only: after a reload, it asks again.</p>
      <button type="submit" class="primary">Open the console</button>
    </form></main>`;
}

class Countdown extends Component {
  componentDidMount() {
    this.timer = setInterval(() => this.forceUpdate(), 1000);
  }

  componentWillUnmount() {
    clearInterval(this.timer);
  }

  render({ until }) {
    return html`<span>${age(Math.max(0, (until - Date.now()) / 1000))}</span>`;
  }
}

export function FullPage({ live }) {
  return html`<main class="page"><h1>All viewer places are taken</h1><p>${clean(live.message, 500)}</p>
    <p>The limit protects the process that serves the traffic. The next attempt is in <${Countdown} until=${live.retryAt} />.</p>
    <p>
      <button type="button" class="primary" onClick=${() => live.connect()}>Try again</button> <a href="api/v1/snapshot">One snapshot as JSON</a></p></main>`;
}

export function MessagePage({ title, text, hint, retry }) {
  return html`<main class="page"><h1>${title}</h1><p>${text}</p><p>${hint}</p><p>
    <button type="button" class="primary" onClick=${retry}>Try again</button></p></main>`;
}

/** A modal dialog: the browser keeps the focus inside and closes it with Escape. */
export function HelpPage({ keys, onClose }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog class="dialog" role="dialog" aria-labelledby="help-title" ref=${dialog} onClose=${onClose}>
      <h2 id="help-title">Keys and definitions</h2>
      <button type="button" class="close" aria-label="Close" onClick=${onClose}>×</button>
      <dl class="keys">${keys.map(([key, text]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
      <dl class="definitions">${Object.values(DEFINITIONS).map(
        ({ label, unit, text, page }) => html`<div>
        <dt>${label}${unit && html` <span class="unit">(${unit})</span>`}</dt>
        <dd>${text}${page && html` <a href=${page} target="_blank" rel="noopener">/${page}</a>`}</dd></div>`,
      )}</dl>
      <p>“–” means unknown; the reason is its tooltip. “≈” marks numbers with estimated tokens.</p>
    </dialog>`;
}
