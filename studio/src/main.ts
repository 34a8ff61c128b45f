import { mount } from 'svelte'
import App from './App.svelte'
import './style.css'

const app = document.getElementById('app')!
app.replaceChildren()
mount(App, { target: app })
