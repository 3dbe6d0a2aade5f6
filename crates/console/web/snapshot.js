// Shows the values of the last 60 s.
const response = await fetch('api/v1/snapshot');
const body = await response.text();
document.getElementById('now').textContent =
  response.ok ? JSON.stringify(JSON.parse(body).now, null, 2) : body;
